"""Archives of stores: uploading segments, and deciding which. Above the log manager; reading archives is below the log."""
