//! Scenarios and fault simulation: Muster on the playground or on a real cluster, judged by what the API shows.
