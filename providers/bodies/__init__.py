"""The bytes of requests and answers, in any API: events, halves of characters, and what is large."""
