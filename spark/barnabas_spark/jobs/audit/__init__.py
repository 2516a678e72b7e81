"""The job `audit`: proves what a lake has of a topic, or finds what is wrong. Begin with `units`."""
