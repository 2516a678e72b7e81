"""The stage of all runs: clusters, machines with disks and networks, child processes."""
