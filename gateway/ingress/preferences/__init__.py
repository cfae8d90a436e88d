"""What a request says about who shall answer it and how: our own fields, OpenRouter's and LiteLLM's."""
