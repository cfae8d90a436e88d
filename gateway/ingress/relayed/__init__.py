"""APIs with routing and failover, but without races: embeddings, moderations, rerank, audio, images, token counts."""
