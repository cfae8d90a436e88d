"""OpenAI's older completions API as a dialect: the model continues a raw prompt."""
