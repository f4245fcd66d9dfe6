"""The strategy lab: the usual ways to send a mail once, and ours, in the same simulated world and trouble."""
