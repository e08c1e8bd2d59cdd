"""Topics of a store: the partition directories, and the configurations and ids in `pylog.json`.

`pylog.json` is optional: a directory that a broker wrote has none. Every topic there has Kafka's defaults, but its
records are kept forever, because the broker's retention settings are unknown here. An entry with another id than the directories
belongs to a topic that a broker has deleted, and is ignored.
A topic exists when it is named there or has a partition directory, so creation and deletion are each committed by one
atomic replacement of that file, and completed at the next opening if the process dies on the way.
"""
