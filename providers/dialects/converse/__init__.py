"""Bedrock's Converse, which is not in the index: providers are asked by way of chat, clients are read as Messages."""
