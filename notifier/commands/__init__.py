"""The commands of an operator; they speak HTTP to the API, which holds every rule."""
