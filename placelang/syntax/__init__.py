"""Text to AST and back: reader, parser, formatter. Knows no meaning."""
