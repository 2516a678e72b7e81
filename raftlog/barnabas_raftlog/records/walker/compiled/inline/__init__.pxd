"""Functions that become part of every compiled module which uses them."""
