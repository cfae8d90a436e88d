"""OpenAI's older completions API as a dialect: raw prompts, continued."""
