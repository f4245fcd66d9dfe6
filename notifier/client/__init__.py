"""The API as its callers see it: where it is, which key opens it, and what its answers mean in words."""
