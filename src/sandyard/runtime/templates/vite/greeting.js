export const greeting = "Hello from Vite";
