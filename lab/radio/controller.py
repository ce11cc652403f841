"""Link layers: the controllers that the guest kernel drives, and the one inside each peripheral.

Bumble's virtual controller is the base. What differs, and why, stands at each override: Bumble's own link is made
for its own host, the kernel is stricter.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any

from bumble import controller, hci, ll
from bumble.core import PhysicalTransport
from bumble.hci import Address
from bumble.link import LocalLink

from .advertisement import CONNECTABLE, SCAN_RESPONSE, SCANNABLE
from .transport import Vhci

if TYPE_CHECKING:
    from .peripheral import Peripheral

log = logging.getLogger("controller")

SUCCESS = hci.HCI_ErrorCode.SUCCESS
NOT_CONNECTED = hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR
SUPERVISION_TIMEOUT = hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR
NOT_ESTABLISHED = hci.HCI_ErrorCode.CONNECTION_FAILED_TO_BE_ESTABLISHED_ERROR
TERMINATED_LOCALLY = hci.HCI_ErrorCode.CONNECTION_TERMINATED_BY_LOCAL_HOST_ERROR

ACCEPT_LIST_SIZE = 64
UNHEARD_SECONDS = 0.2  # six connection intervals, after which a link without an answer is lost


class Link(controller.Connection):
    """One end of a link; it knows its other end, so nothing is looked up by address.

    Bumble routes by the sender's random address, and so loses the data of a host that connects from its public one,
    as BlueZ does.
    """

    controller: LabController
    other: Link | None = None
    peripheral: Peripheral | None = None  # who is at the other end of an adapter's link
    features_asked = False  # whether the kernel waits for the peer's features

    def on_acl_pdu(self, pdu: bytes) -> None:
        """A whole L2CAP frame from this end's host."""
        if self.other is not None:
            self.other.controller.deliver(self.other, pdu)

    def send_ll_control_pdu(self, packet: ll.ControlPdu) -> None:
        """A link layer control packet to the other end."""
        if self.other is not None:
            receiver = self.other.controller
            asyncio.get_running_loop().call_soon(receiver.on_ll_control_pdu, self.self_address, packet)


class LabController(controller.Controller):
    """What both kinds of controller share."""

    # Extended and periodic advertising and LL privacy are claimed by Bumble without the commands that go with them.
    le_features = controller.Controller.le_features & ~(
        hci.LeFeatureMask.LE_EXTENDED_ADVERTISING
        | hci.LeFeatureMask.LE_PERIODIC_ADVERTISING
        | hci.LeFeatureMask.LL_PRIVACY
    )
    acl_data_packet_length = le_acl_data_packet_length = 251
    supported_max_tx_octets = supported_max_rx_octets = 251

    def new_link(self, role: hci.Role, own: Address, peer: Address) -> Link:
        """Makes this controller's end of a link."""
        link = Link(
            controller=self,
            handle=self.allocate_connection_handle(),
            role=role,
            self_address=own,
            peer_address=peer,
            link=self.link,
            transport=PhysicalTransport.LE,
            link_type=hci.HCI_Connection_Complete_Event.LinkType.ACL,
        )
        self.le_connections[peer] = link
        return link

    def report_connected(self, link: Link, request: hci.HCI_LE_Create_Connection_Command) -> None:
        """Tells this controller's host of a new link."""
        self.send_hci_packet(
            hci.HCI_LE_Connection_Complete_Event(
                status=SUCCESS,
                connection_handle=link.handle,
                role=link.role,
                peer_address_type=link.peer_address.address_type,
                peer_address=link.peer_address,
                connection_interval=request.connection_interval_min,
                peripheral_latency=request.max_latency,
                supervision_timeout=request.supervision_timeout,
                central_clock_accuracy=0,
            )
        )

    def deliver(self, link: Link, pdu: bytes) -> None:
        """An L2CAP frame from the link to this controller's host."""
        if self.le_connections.get(link.peer_address) is link:
            self.send_hci_packet(hci.HCI_AclDataPacket(link.handle, 2, 0, len(pdu), pdu))

    def on_le_disconnected(self, connection: controller.Connection, reason: int) -> None:
        """Both ends may end a link at the same moment; the second report would be about nothing."""
        if self.le_connections.get(connection.peer_address) is connection:
            super().on_le_disconnected(connection, reason)


class PeripheralController(LabController):
    """The controller of one device on the air; its host is Bumble's."""


class AdapterController(LabController):
    """A controller that the kernel sees as hciN."""

    filter_accept_list_size = ACCEPT_LIST_SIZE

    def __init__(self, name: str, address: str, duplicates: str) -> None:
        self.vhci = Vhci()
        super().__init__(name, host_source=self.vhci, host_sink=self.vhci, link=LocalLink(), public_address=address)
        self.handed = 0
        self.silence = ""  # it scans and reports nothing until `restart`, `power`, or for good: `none`
        self._duplicates = duplicates
        self._heard: set[tuple[bytes, bytes | None]] = set()
        self._accept_list: set[Address] = set()

    def unplug(self) -> None:
        """The controller goes, and its links with it, unannounced as far as the peers can tell."""
        self._drop_links()
        self.vhci.close()

    def _drop_links(self) -> None:
        for link in list(self.le_connections.values()):
            if isinstance(link, Link):
                link.send_ll_control_pdu(ll.TerminateInd(SUPERVISION_TIMEOUT))
        self.le_connections.clear()

    # Advertisements

    def hear(
        self, peripheral: Peripheral | None, kind: int, address: Address, data: bytes, response: bytes, rssi: int
    ) -> bool:
        """One advertising event on the air. True if it was handed to the kernel."""
        handed = False
        if self.le_scan_enable and not self.silence and self._wanted(address, data):
            active = self.le_scan_type == 1 and kind in (CONNECTABLE, SCANNABLE)
            self._report(kind, address, data, rssi)
            if active:
                self._report(SCAN_RESPONSE, address, response, rssi)
            handed = True
            self.handed += 1
        request = self.pending_le_connection
        if request is not None and kind == CONNECTABLE and peripheral is not None:
            listed = request.initiator_filter_policy == 1 and address in self._accept_list
            if listed or (request.initiator_filter_policy == 0 and request.peer_address == address):
                self._connect(peripheral, address, request)
        return handed

    def _wanted(self, address: Address, data: bytes) -> bool:
        """Accept list and duplicate filter, as the kernel set them."""
        if self.le_scanning_filter_policy & 1 and address not in self._accept_list:
            return False
        if not self.filter_duplicates or self._duplicates == "none":
            return True
        key = (bytes(address), data if self._duplicates == "data" else None)
        if key in self._heard:
            return False
        self._heard.add(key)
        return True

    def _report(self, kind: int, address: Address, data: bytes, rssi: int) -> None:
        """LE Advertising Report with one report, Core Vol 4, Part E, 7.7.65.2; made by hand because it is frequent."""
        parameters = (
            struct.pack("<BBBB6sB", 2, 1, kind, address.address_type & 1, bytes(address), len(data))
            + data
            + struct.pack("b", rssi)
        )
        self.vhci.on_packet(bytes((4, 0x3E, len(parameters))) + parameters)

    # Links

    def _connect(self, peripheral: Peripheral, address: Address, request: hci.HCI_LE_Create_Connection_Command) -> None:
        answer = peripheral.connection_attempt()
        if answer == "later":
            return
        self.pending_le_connection = None
        public = request.own_address_type == hci.OwnAddressType.PUBLIC
        own = self.public_address if public else self.random_address
        link = self.new_link(hci.Role.CENTRAL, own, address)
        if answer == "refused":
            # As of a peer that never sends on the new link (Core Vol 6, Part B, 4.5.2): it is made, and then lost.
            # A completion with an error status would be no way: kernel 6.1 then waits for ever.
            self.report_connected(link, request)
            asyncio.get_running_loop().call_later(UNHEARD_SECONDS, self.on_le_disconnected, link, NOT_ESTABLISHED)
            return
        link.other = peripheral.accept(own, address)
        link.other.other = link
        link.peripheral = peripheral
        self.report_connected(link, request)
        link.other.controller.report_connected(link.other, request)

    def _send_cancelled(self, address: Address) -> None:
        self.send_hci_packet(
            hci.HCI_LE_Connection_Complete_Event(
                status=NOT_CONNECTED,
                connection_handle=0,
                role=hci.Role.CENTRAL,
                peer_address_type=address.address_type,
                peer_address=address,
                connection_interval=0,
                peripheral_latency=0,
                supervision_timeout=0,
                central_clock_accuracy=0,
            )
        )

    def on_ll_control_pdu(self, sender_address: Address, packet: ll.ControlPdu) -> None:
        """Notes that the peer has told its features."""
        link = self.le_connections.get(sender_address)
        if isinstance(link, Link) and isinstance(packet, ll.FeatureRsp):
            link.features_asked = False
        super().on_ll_control_pdu(sender_address, packet)

    def on_hci_le_read_remote_features_command(self, command: hci.HCI_LE_Read_Remote_Features_Command) -> None:
        """Notes that the kernel waits for the peer's features."""
        link = self.find_le_connection_by_handle(command.connection_handle)
        if isinstance(link, Link):
            link.features_asked = True
        super().on_hci_le_read_remote_features_command(command)

    def on_le_disconnected(self, connection: controller.Connection, reason: int) -> None:
        """What the kernel waits for fails before the link ends; kernel 6.1 crashes where a controller leaves it out."""
        if isinstance(connection, Link) and connection.features_asked:
            connection.features_asked = False
            failed = hci.HCI_LE_Read_Remote_Features_Complete_Event(
                status=reason, connection_handle=connection.handle, le_features=bytes(8)
            )
            self.send_hci_packet(failed)
        super().on_le_disconnected(connection, reason)

    def send_hci_packet(self, packet: hci.HCI_Packet) -> None:
        """Writes at once, so that events and data reach the kernel in the order they were made."""
        self.vhci.on_packet(bytes(packet))

    def deliver(self, link: Link, pdu: bytes) -> None:
        """Made by hand, because notifications are frequent."""
        if self.le_connections.get(link.peer_address) is link:
            self.vhci.on_packet(struct.pack("<BHH", 2, link.handle | 2 << 12, len(pdu)) + pdu)

    def on_packet(self, packet: bytes) -> None:
        """A packet of the kernel that fails is logged: the radio goes on."""
        try:
            super().on_packet(packet)
        except Exception:
            log.exception("HCI packet from the kernel failed: %s", packet.hex())

    # Commands that Bumble answers without doing them, or not at all

    def on_hci_command(self, command: hci.HCI_Command) -> Any:
        """A command without a handler."""
        log.warning("%s: command from the kernel that the radio does not know: %s", self.name, command.name)
        return super().on_hci_command(command)

    def on_hci_reset_command(self, command: hci.HCI_Reset_Command) -> Any:
        """Scanning, lists and links end with a reset."""
        if self.silence == "power":
            self.silence = ""
        self.le_scan_enable = False
        self.pending_le_connection = None
        self._accept_list.clear()
        self._drop_links()
        return super().on_hci_reset_command(command)

    def on_hci_le_set_scan_enable_command(self, command: hci.HCI_LE_Set_Scan_Enable_Command) -> Any:
        """The duplicate filter starts anew."""
        self._heard.clear()
        return super().on_hci_le_set_scan_enable_command(command)

    def on_hci_le_create_connection_cancel_command(self, _: hci.HCI_LE_Create_Connection_Cancel_Command) -> Any:
        """The pending attempt ends with a completion, after the answer to the command (7.8.13)."""
        request = self.pending_le_connection
        if request is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        self.pending_le_connection = None
        asyncio.get_running_loop().call_soon(self._send_cancelled, request.peer_address)
        return hci.HCI_StatusReturnParameters(SUCCESS)

    def on_hci_disconnect_command(self, command: hci.HCI_Disconnect_Command) -> None:
        """The host that ends a link is told so: reason 0x16, where Bumble gives back what the peer is told."""
        link = self.find_le_connection_by_handle(command.connection_handle)
        if not isinstance(link, Link):
            self._send_hci_command_status(NOT_CONNECTED, command.op_code)
            return
        self._send_hci_command_status(hci.HCI_COMMAND_STATUS_PENDING, command.op_code)
        link.send_ll_control_pdu(ll.TerminateInd(command.reason))
        self.on_le_disconnected(link, TERMINATED_LOCALLY)

    def on_hci_le_clear_filter_accept_list_command(self, _: hci.HCI_LE_Clear_Filter_Accept_List_Command) -> Any:
        """Core Vol 4, Part E, 7.8.15."""
        self._accept_list.clear()
        return hci.HCI_StatusReturnParameters(SUCCESS)

    def on_hci_le_add_device_to_filter_accept_list_command(
        self, command: hci.HCI_LE_Add_Device_To_Filter_Accept_List_Command
    ) -> Any:
        """Core Vol 4, Part E, 7.8.16."""
        self._accept_list.add(command.address)
        return hci.HCI_StatusReturnParameters(SUCCESS)

    def on_hci_le_remove_device_from_filter_accept_list_command(
        self, command: hci.HCI_LE_Remove_Device_From_Filter_Accept_List_Command
    ) -> Any:
        """Core Vol 4, Part E, 7.8.17."""
        self._accept_list.discard(command.address)
        return hci.HCI_StatusReturnParameters(SUCCESS)

    def on_hci_read_rssi_command(self, command: hci.HCI_Read_RSSI_Command) -> Any:
        """The signal of the device at the other end; the kernel asks for `Get Connection Information`."""
        link = self.find_le_connection_by_handle(command.handle)
        peripheral = link.peripheral if isinstance(link, Link) else None
        return hci.HCI_Read_RSSI_ReturnParameters(
            status=SUCCESS if peripheral else NOT_CONNECTED,
            handle=command.handle,
            rssi=peripheral.signal() if peripheral else 127,
        )

    def on_hci_read_transmit_power_level_command(self, command: hci.HCI_Command) -> None:
        """Core Vol 4, Part E, 7.3.35; asked for beside the RSSI. Bumble has no class for it: the answer is written here."""
        answer = command.op_code.to_bytes(2, "little") + bytes((SUCCESS,)) + command.parameters[:2] + bytes((0,))
        self.vhci.on_packet(bytes((4, 0x0E, 1 + len(answer), 1)) + answer)
