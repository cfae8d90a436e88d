"""The measures, a file each, named for what it measures: ``async def measure(edge: Edge) -> list[Figure]``."""
