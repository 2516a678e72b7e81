"""Jobs over topics and tables, as commands: `barnabas-spark`. Begin with `cli`."""
