//! The program paddlecloud-server.
