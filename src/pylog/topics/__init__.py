"""Topics of a store: what the directory's names say, and what `pylog.json` adds (configurations and ids).

`pylog.json` is pylog's own and optional: a directory that a broker wrote has none. Every topic there has Kafka's defaults, but is
kept for ever: what a broker was told to keep is not known here. An entry whose id is not that of the directories is of a topic
that a broker has deleted, and counts no more.
A topic exists when it is named there or has a partition directory, so creation and deletion are each committed by one
atomic replacement of that file, and completed at the next opening if the process dies on the way.
"""
