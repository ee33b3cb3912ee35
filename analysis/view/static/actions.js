// What the page can set going: filled in with the buttons that change something.
export const Controls = () => null;
