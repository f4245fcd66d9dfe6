"""The rig: an installation of its own, broken in every way we know of while a load goes on."""
