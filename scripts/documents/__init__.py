"""Commands about the documents: their examples, their picture, their site."""
