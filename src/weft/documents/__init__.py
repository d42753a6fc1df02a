"""What leaves weft as JSON: the same documents from the API, the command line and webhooks.

Field names stay, every field is always there, ids are numbers, times are texts in RFC 3339 and UTC.
"""
