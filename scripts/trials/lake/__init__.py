"""Tables of the lake against other people's programs: real S3 servers, and Iceberg's own reader."""
