"""The Spark data source `barnabas`. Begin with `source`."""
