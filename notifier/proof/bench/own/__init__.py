"""Our own parts and the floor as drivers: what runs in processes of its own, so that its cost can be told apart."""
