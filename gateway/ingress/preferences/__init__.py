"""What a request says of who is to answer it and how, in our words, and in OpenRouter's and LiteLLM's."""
