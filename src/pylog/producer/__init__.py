"""The producer: takes records one at a time from any number of threads, and appends them to partitions in batches.

`producer` (the API) puts each record into `buffer`, as the `future` that `send` returns. `sender`, one thread for each producer,
takes the waiting records, converts them to `columns`, calls the partitioner, and appends the records of each partition in
batches. The batches are numbered (`numbering`), so that a log appends each one once.
"""
