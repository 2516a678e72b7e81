"""What the runs work on: a cluster as its user has it, machines with disks and networks of their own, processes."""
