"""The guards of the house, each with the change that takes it out and the test that must then fail."""
