"""What is measured, a module a work."""
