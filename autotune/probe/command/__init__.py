"""Training commands of the user's as workloads: started unchanged, watched from within by a hook."""
