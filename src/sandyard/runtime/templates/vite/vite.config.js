import { defineConfig } from "vite";

export default defineConfig({
  // Whoever reaches this came through the gateway, by the name of this sandbox.
  server: { allowedHosts: true },
});
