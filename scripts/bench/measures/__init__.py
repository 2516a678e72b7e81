"""One measurement a module, behind the command of the same name."""
