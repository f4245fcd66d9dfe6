"""Other Postgres queues, a small script each, run in an environment of their own."""
