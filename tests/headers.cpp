// Nothing: precompiled headers want a source that has them.
