"""The operations that the API, the pages and the command line share, one module a noun with its structs.

Field names stay, every field is always there, ids are numbers, times are texts in RFC 3339 and UTC.
"""
