"""Small fakes and builders for tests: a model server, an engine, a sandbox, profiles on disk."""
