export const Fork = () => null;
