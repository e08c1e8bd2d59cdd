"""Object stores that run on this machine, none of them pylog's own: two of S3, one of Azure."""
