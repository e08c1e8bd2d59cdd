"""Objects in a store such as S3: the requests, the names, and the documents of an archive.

Below the log: reading a segment from an archive needs no more than this. Writing an archive is above the log (`pylog.archive`).
"""

from pylog.objects.objects import ObjectInfo, ObjectStore
from pylog.objects.opening import open_objects
from pylog.urls import is_url

__all__ = ["ObjectInfo", "ObjectStore", "is_url", "open_objects"]
