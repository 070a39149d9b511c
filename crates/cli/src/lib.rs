//! The programs paddlectl and paddlecloud.
