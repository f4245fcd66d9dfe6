"""The bench: this service, its peers and the floor on one machine in one hour, alternating."""
