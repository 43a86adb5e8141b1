"""autotune inside of other frameworks' trainings. For users to import; each module imports the framework it is for."""
