"""Bedrock's Converse: no client has this API, so it is not in the index; chat is translated to it."""
