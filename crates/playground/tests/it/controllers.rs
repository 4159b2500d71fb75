//! Small controllers, seen through the API under virtual time.
