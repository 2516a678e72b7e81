"""What the commands that administer topics, groups and configurations share."""
