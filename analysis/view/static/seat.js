export const Seat = () => null;
