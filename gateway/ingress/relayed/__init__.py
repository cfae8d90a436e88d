"""What is routed and failed over but not raced: embeddings, moderations, rerank, sound, pictures, counting tokens."""
