"""The parts that the commands for topics, groups and configurations share."""
