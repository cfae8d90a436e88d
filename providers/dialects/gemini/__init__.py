"""Google's generateContent, which its SDKs call the Gemini API."""
